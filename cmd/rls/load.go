package main

import (
	"fmt"
	"os"
	"strings"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
)

// ruleOptions returns the options with which rules load under the settings. All commands that load rules
// call it, so that rules mean the same to all of them.
func ruleOptions(s settings.RuleSettings) (language.Options, error) {
	strategy, err := algorithms.ParseStrategy(s.DefaultStrategy)
	if err != nil {
		return language.Options{}, fmt.Errorf("DEFAULT_STRATEGY: %w", err)
	}
	onError, known := descriptors.ParsePolicy(s.OnError)
	if !known {
		return language.Options{}, fmt.Errorf("ON_ERROR: unknown policy %q", s.OnError)
	}
	return language.Options{
		MergeDomains:    s.MergeDomainConfig,
		Charge:          charge(s),
		Strategy:        strategy,
		Burst:           uint32(s.DefaultBurst),
		OnError:         onError,
		ReplicasUnknown: backendTypes[s.BackendType].shared && s.ReplicasUnknown(),
		Share:           s.Share(),
	}, nil
}

// charge is the default of a domain's charge.
func charge(s settings.RuleSettings) descriptors.Charge {
	if s.StopCacheKeyIncrementWhenOverlimit {
		return descriptors.ChargeDenying
	}
	return descriptors.ChargeAlways
}

// readRules reads the files of rules that a command is given as a path: a file, or
// all files of a folder. Unlike [sources.Folder] it takes a path that does not exist
// for a mistake. A file with tests of rules has none.
// dangling, if not nil, is [sources.Folder.Dangling].
func readRules(s settings.RuleSettings, path string, dangling func(string)) ([]yaml.Text, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return sources.Folder{Path: path, IgnoreDotFiles: s.RuntimeIgnoredotfiles, Dangling: dangling}.Read()
}

// errTests is the error of a path that names tests of rules where rules are wanted.
func errTests(path string) error {
	return fmt.Errorf("%s has tests of rules, as the end of its name says, and no rules; rls test runs them", path)
}

// loadRules loads the rules of a path that a command is given.
func loadRules(s settings.RuleSettings, path string) (*descriptors.Tree, error) {
	files, err := readRules(s, path, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read rules: %w", err)
	case len(files) == 0 && strings.HasSuffix(path, sources.TestFile):
		return nil, errTests(path)
	}
	options, err := ruleOptions(s)
	if err != nil {
		return nil, err
	}
	tree, _, err := yaml.Load(files, options)
	return tree, err
}
