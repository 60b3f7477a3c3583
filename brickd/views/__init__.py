"""What a person may be shown, each as a document: the same for the command line and for the daemon's API."""
