"""What workers' tensors come to: heard, set side by side, judged."""
