"""Write the catalog of services and events into the docs: `gen_catalog.py [--check]`.

The sources are read statically. Regions between `<!-- catalog:begin NAME -->` and
`<!-- catalog:end NAME -->` on the pages under `docs/subsystems/`, on `docs/catalog.md` and in the
package READMEs are replaced, and `docs/catalog.json` is written.
"""

import sys

from catalog.command import main

if __name__ == "__main__":
    sys.exit(main())
