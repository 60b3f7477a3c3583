"""What of this machine keeps brickd from working, and how it is mended: facts apart from their judgement."""
