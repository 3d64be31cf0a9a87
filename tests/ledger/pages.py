"""A run with everything that a page shows: restarts, lost work, evaluations, a sample, imputed time, hostile text."""

from growing_run import GrowingRun, committed, event, span, step

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> &amp; \x1b[31m"


def eventful_run(folder) -> GrowingRun:
    """Two attempts of two ranks; 8 000 steps' worth of words are not needed to see each block of the page."""
    run = GrowingRun(folder, world=2)
    run.begin(0)
    run.write(0, event("corpus", 0, gzip_bpb=1.9, xz_bpb=1.6, held_out_bytes=1000, vocab_size=4096))
    run.all(span(1, "startup.import", 0, 2))
    for number in range(20):
        run.all(step(number, 2 + number, 3 + number, loss=8.0 - number / 10, forward=0.7, data_wait=0.2))
    run.write(0, committed(10, 12.5), event("eval", 12.5, s=10, loss=6.9, bpb=2.8, tokens=10, bytes=30, full=False))
    run.end(24, exit=70, signal=9)
    run.begin(100)
    run.all(event("restore", 100, id="step-10", to=10, tier="storage", why="resume"))
    for number in range(10, 30):
        run.all(step(number, 91 + number, 92 + number, loss=8.0 - number / 10, forward=0.8, comm__exposed__fsdp=0.1))
    run.write(0, committed(30, 122), event("eval", 122, s=30, loss=5.1, bpb=2.1, tokens=10, bytes=30, full=True))
    run.write(0, event("sample", 122, s=30, prompt="def <b>", text=HOSTILE))
    run.end(124, exit=0, reason="target reached")
    return run
