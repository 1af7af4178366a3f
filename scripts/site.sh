#!/usr/bin/env bash
# scripts/site.sh FOLDER   writes the documents as a static site into FOLDER
#
# Sphinx and its theme come from PyPI, pinned in tools/site/requirements.txt, and are unpacked under
# .tools/. A link to a document or a heading that does not exist fails.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 -m pip --version >/dev/null 2>&1 || { echo "make site: Python 3.11 or later with pip is needed" >&2; exit 1; }
pinned=tools/site/requirements.txt
library=.tools/site-$(sha256sum "$pinned" | cut -c1-12)
if [ ! -e "$library/done" ]; then
	rm -rf "$library"
	python3 -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: -r "$pinned" --target "$library"
	touch "$library/done"
fi
rm -rf "$1"
PYTHONPATH=$library python3 -m sphinx -W --keep-going -q -j auto -c tools/site -b html -d "$(mktemp -d)" . "$1"
