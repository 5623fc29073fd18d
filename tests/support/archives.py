"""Files of fits that were changed by hand."""

import io
import json
import zipfile


def rewritten(archive, **changes):
    """Return an archive whose record has other entries; None removes one."""
    source, stream = zipfile.ZipFile(io.BytesIO(archive)), io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in source.namelist():
            member = source.read(name)
            if name == "dgp_ppl.json":
                record = json.loads(member) | changes
                kept = {n: v for n, v in record.items() if n not in changes or v is not None}
                member = json.dumps(kept).encode()
            file.writestr(name, member)
    return stream.getvalue()
