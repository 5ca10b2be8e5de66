"""SmolLM2-135M-Instruct and a DFlash drafter trained for it."""
