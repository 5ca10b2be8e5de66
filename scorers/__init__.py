"""Edge scorers, each registered through an entry point like a third party's."""
