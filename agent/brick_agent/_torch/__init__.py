"""What is done to a torch model: its parts are timed, and what they compute is compared."""
