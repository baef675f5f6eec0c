"""Where state lives. One port (port.py), one plan (core/pool/plan.py), one conformance suite.

``memory`` keeps rows in dictionaries, ``sqlite`` in one file that all processes of a machine share,
``postgres`` on a server that many machines share; these run the verbs of operations.py. The verbs of
``redis``, for many machines too, are scripts that mirror those, and ask for a plan where they need one. The
same trace gives the same verdicts on all of them.
"""
