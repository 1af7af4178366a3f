package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// version and revision are set by the linker in releases.
var version, revision string

type versionCmd struct{}

// versionFlag is the flag that does the same.
type versionFlag bool

// BeforeReset runs before other arguments are looked at.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	if err := (versionCmd{}).Run(k); err != nil {
		return err
	}
	k.Exit(0)
	return nil
}

func (versionCmd) Run(k *kong.Kong) error {
	release, commit := build()
	if commit != "" {
		release += " (" + commit + ")"
	}
	_, err := fmt.Fprintf(k.Stdout, "rls %s %s %s/%s\n", release, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// build says what this program was built from; the commit is empty where
// neither the linker nor the toolchain knew it.
func build() (release, commit string) {
	release, commit = version, revision
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release, commit
	}
	if release == "" {
		release = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && commit == "" {
			commit = s.Value
		}
	}
	return release, commit
}
