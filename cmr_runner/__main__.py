from cmr_runner.commands.entry import main

if __name__ == "__main__":
    main()
