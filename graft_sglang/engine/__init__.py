"""Everything that imports SGLang."""
