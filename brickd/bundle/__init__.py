"""One archive for an incident: what the verbs say, a recording, the configuration and the environment."""
