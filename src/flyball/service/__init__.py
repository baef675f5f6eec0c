"""``flyball serve``: what the governor knows and does, over HTTP.

    server.py       the process: bind, serve, drain; and what one connection may cost
    middleware.py   what holds for every request: its path, its time, its headers
    app.py          the parts put together, and the OpenAPI document
    auth.py         what each token may do; tokens.py: the tokens themselves; problems.py: how a no is said
    monitor.py      reads the store once a second, however many watch; timeline.py and streams.py live from it
    routes/         one file per resource

Everything here needs the extra ``[serve]``, but for tokens.py.
"""
