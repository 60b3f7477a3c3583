"""What may be asked: one file per question, apart from its answer, so that to ask loads nothing that answers."""
