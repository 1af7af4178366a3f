package cli

import (
	"cmp"
	"runtime/debug"
)

// Version is the one that the linker sets in releases, else "".
var Version string

// Revision is the commit that the linker sets in releases, else "".
var Revision string

// Build returns the version and the commit that this program was built from; the
// commit is empty if neither the linker nor the toolchain knew it.
func Build() (release, commit string) {
	release, commit = Version, Revision
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release, commit
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = cmp.Or(commit, s.Value)
		}
	}
	return cmp.Or(release, info.Main.Version), commit
}
