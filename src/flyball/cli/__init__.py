"""The command line: one file per verb, each with ``SUMMARY``, ``EXAMPLE``, ``add_arguments`` and ``run``.

``main`` imports only the verb that is used, so ``flyball exec`` stays quick.
"""
