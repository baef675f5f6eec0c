"""``flyball serve``: what the governor knows and does, over HTTP.

    server.py   the process: bind, serve, drain
    wire.py     what one connection may cost: head and body sizes, slow senders, slow readers
    front.py    what holds for every request: its path, its time, its headers
    app.py      the parts put together; access.py says who may do what, problems.py how a no is said
    watch.py    one look at the store a second, however many watch; history.py, streams.py live from it
    reading.py, acting.py, health.py   the routes

Everything here needs the extra ``[serve]``, but for tokens.py.
"""
