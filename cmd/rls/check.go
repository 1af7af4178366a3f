package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/sources"
)

type checkCmd struct {
	Dir string `arg:"" help:"Folder with rules: every file in it and in its subfolders."`

	MergeDomainConfig     bool `env:"MERGE_DOMAIN_CONFIG" default:"false" help:"Let several files describe one domain."`
	RuntimeIgnoredotfiles bool `env:"RUNTIME_IGNOREDOTFILES" default:"false" help:"Ignore files and folders whose name starts with a dot."`
}

func (c *checkCmd) Run(k *kong.Kong) error {
	// A server takes a missing folder for one without rules; here it is a slip.
	if _, err := os.ReadDir(c.Dir); err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	files, err := sources.Folder{Path: c.Dir, IgnoreDotFiles: c.RuntimeIgnoredotfiles}.Read()
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	tree, warnings, err := descriptors.Load(files, descriptors.Options{MergeDomains: c.MergeDomainConfig})
	for _, warning := range warnings {
		fmt.Fprintf(k.Stdout, "warning: %v\n", warning)
	}
	if err != nil {
		fmt.Fprintln(k.Stdout, err)
		return fmt.Errorf("%s: the rules cannot be used", c.Dir)
	}
	_, err = fmt.Fprintf(k.Stdout, "%s: files %d, domains %d, no problems\n", c.Dir, len(files), len(tree.Domains()))
	return err
}
