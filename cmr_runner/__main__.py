from cmr_runner.commands.run import main

if __name__ == "__main__":
    main()
