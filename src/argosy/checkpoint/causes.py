"""Why something failed, in one line. No torch here: a writer process says it with the same words as a rank."""


def root_cause(error: BaseException) -> str:
    """The system error behind whatever was wrapped around it, else the innermost error."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    for one in chain:
        if isinstance(one, OSError) and one.strerror:
            return f"{one.strerror} ({one.filename})" if one.filename else one.strerror
    return f"{type(chain[-1]).__name__}: {chain[-1]}".splitlines()[0]
