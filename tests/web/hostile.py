"""Texts that somebody may write anywhere: each would run as a script, or lead elsewhere, where it is not escaped."""

from __future__ import annotations

_BREAKS = (
    "",
    '"',
    "'",
    "`",
    ">",
    '">',
    "'>",
    "-->",
    "]]>",
    "</script>",
    "</title>",
    "</textarea>",
    "</pre>",
    "</svg>",
    "\\",
    "\u2028",
    "{{",
    "${",
    "<!--",
    "\u202e",
)
_VECTORS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg onload=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "javascript:window.pwned=1",
    " onmouseover=window.pwned=1 autofocus onfocus=window.pwned=1 x=",
    "<style>*{background:url(//evil.example)}</style>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<form action=//evil.example><button autofocus>",
    "<math><mtext><img src=x onerror=window.pwned=1>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "';window.pwned=1;//",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "%3Cscript%3Ewindow.pwned=1%3C/script%3E",
)
HOSTILE = tuple(f"{start}{vector}" for start in _BREAKS for vector in _VECTORS)
"""300 texts that somebody may write anywhere."""
