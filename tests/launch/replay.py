"""A worker that writes the steps of another run's journal once more, for tests of `argosy repeat`.

``replay.py FILE FIELD STEP VALUE … --run-dir …``: the field of that step gets another value; step -1 changes nothing.
"""

import json
import sys
from pathlib import Path

source, field, step, value = sys.argv[1:5]
options = dict(zip(sys.argv[-8::2], sys.argv[-7::2], strict=True))
journal = Path(options["--run-dir"]) / "events" / f"attempt-{options['--attempt']}" / "rank-0.jsonl"
records = [json.loads(line) for line in Path(source).read_text().splitlines()]
for record in records:
    if record["k"] in ("step", "eval") and record["s"] == int(step) and field in record:
        record[field] = json.loads(value)
journal.write_text("".join(json.dumps(record) + "\n" for record in records))
