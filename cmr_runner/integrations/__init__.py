"""CMR as a callback of other people's trainers. Each module needs the framework that it is named after."""
