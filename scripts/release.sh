#!/bin/sh
# Makes a release of the tree as it is: the version, also in deploy/, the changelog's heading, one commit, the tag, and the
# archives in dist/. Nothing is pushed.
#
# usage: release.sh VERSION
set -eu

version=${1:-}
cd "$(dirname "$0")/.."
refuse() { echo "release: $1" >&2; exit 2; }

printf '%s\n' "$version" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' || refuse "VERSION=1.2.3 expected, not '$version'"
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes that are not committed"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || refuse "the tag v$version is there already"
grep -qx '## Unreleased' CHANGELOG.md || refuse "CHANGELOG.md has no heading '## Unreleased'"
date=$(date -u +%Y-%m-%d)

undo() { git checkout -q -- .; }
trap 'undo' EXIT
old=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' kproxy/__init__.py)
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" kproxy/__init__.py
# Images are of this version.
git grep -lF "$old" -- deploy | xargs -r sed -i "s/\(^\|[^0-9.]\)$(printf '%s' "$old" | sed 's/\./\\./g')\b/\1$version/g"
sed -i "s/^## Unreleased\$/## Unreleased\n\n## $version ($date)/" CHANGELOG.md
git commit -qam "release: $version"
trap - EXIT
git tag -a "v$version" -m "kproxy $version"
make --no-print-directory dist
echo "kproxy $version: tagged v$version, archives in dist/; push with: git push --follow-tags"
