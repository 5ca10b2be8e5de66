"""SGLang's HTTP application with the plugins loaded: what several tokenizer workers import.

Those processes are the web server's own workers. SGLang loads plugins in all others, but not
there, and lets the application they import be named (``SGLANG_HTTP_SERVER_APP_PATH``).
"""

from sglang.srt.plugins import load_plugins

load_plugins()

from sglang.srt.entrypoints.http_server import app  # noqa: E402

__all__ = ["app"]
