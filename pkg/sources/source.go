// Package sources brings rules in: from files, watched for changes.
//
// A [Source] reads files of rules and publishes them whenever they changed;
// [Rules] loads what is published and puts it in force. It promises that rules
// that cannot be read or loaded change nothing (the last good ones stay in
// force) and that a change is noticed even when its notification is lost. It
// leaves the language of the rules to pkg/descriptors.
package sources

import (
	"context"
	"errors"
	"log/slog"

	"example.org/rls/pkg/descriptors"
)

// Publish takes all the files of rules there are now, or the reason why they
// cannot be read. It returns why the rules were refused, nil when they are in
// force.
type Publish func(files []descriptors.File, unreadable error) error

// Source is where rules come from.
type Source interface {
	// Run calls publish, always from the same goroutine, with the rules and
	// again whenever they change, until ctx ends. Its error is a reason why it
	// had to stop earlier.
	Run(ctx context.Context, publish Publish) error
}

// Rules puts the rules that a source publishes in force.
type Rules struct {
	Options descriptors.Options
	// Use takes each good set of rules.
	Use func(*descriptors.Tree)
	// Skipped, if not nil, is told how many problems each good set of rules
	// had, for which something was left out (descriptors.Options.SkipWrong).
	Skipped func(problems int)
	// Loaded is told the outcome of each attempt, after Use.
	Loaded func(error)
	Log    *slog.Logger
}

// Publish is a [Publish].
func (r *Rules) Publish(files []descriptors.File, unreadable error) error {
	err := unreadable
	if err == nil {
		err = r.load(files)
	}
	if err != nil {
		r.Log.Error("rules refused, the last good ones stay in force", "files", len(files), "problems", err.Error())
	}
	r.Loaded(err)
	return err
}

func (r *Rules) load(files []descriptors.File) error {
	tree, warnings, err := descriptors.Load(files, r.Options)
	for _, warning := range warnings {
		r.Log.Warn("rules", "warning", warning.Error())
	}
	if tree == nil {
		return err
	}
	var problems descriptors.Problems
	errors.As(err, &problems)
	for _, problem := range problems {
		r.Log.Error("rules: left out, the others are in force", "problem", problem.Error())
	}
	r.Use(tree)
	if r.Skipped != nil {
		r.Skipped(len(problems))
	}
	r.Log.Info("rules loaded", "files", len(files), "domains", len(tree.Domains()))
	return nil
}
