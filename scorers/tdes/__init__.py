"""Target-Distilled Edge Scoring (TDES): model, losses, training, scorers."""
