// Package sources brings rules into the process. [Files] reads them from files and
// watches the files; package xds asks a management server for them.
//
// A [Source] publishes rules whenever they change;
// [Rules] loads published files and puts their rules in force. The package
// promises that rules that cannot be read or loaded change nothing, so that the
// last good rules stay in force, and that a change is noticed even when its
// notification is lost. The language of the rules is left to pkg/descriptors/rules.
package sources

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// Publish takes all files of rules that exist now, or the reason why they cannot
// be read. It returns why the rules were refused, or nil when they are in force.
type Publish func(files []*rules.File, unreadable error) error

// Source is a place that rules come from.
type Source interface {
	// Run calls publish with the rules, and again whenever they change, until
	// ctx ends. All calls are made from one goroutine. The error says why Run
	// had to stop before ctx ended.
	Run(ctx context.Context, publish Publish) error
}

// ErrNoFolder is the error of [Files.Run] when the folder with the rules does
// not exist at the start.
var ErrNoFolder = errors.New("the folder with the rules does not exist")

// Tables are the tables that rules name by an address. Package tables fetches them.
type Tables interface {
	// Leave leaves the newest rows of the tables that have one of the problems out of the next load,
	// and reports whether good rows stand in their place.
	Leave(problems rules.Problems) bool
	// Loaded takes note of a load, and returns what is wrong with tables whose last good rows stay in
	// force.
	Loaded(inForce bool) error
}

// Rules puts the rules that a source publishes in force.
type Rules struct {
	Options rules.Options
	// Use is called with each good set of rules, and puts it in force.
	Use func(*descriptors.Tree)
	// Skipped, if not nil, is called with the number of problems of each set of
	// rules that is put in force. For each problem a descriptor or a file was left
	// out (rules.Options.SkipWrong).
	Skipped func(problems int)
	// Warned, if not nil, is called right before Use with the warnings of the rules, and
	// with the problems for which something was left out (rules.Options.SkipWrong).
	Warned func([]string)
	// Tables, if not nil, fetches the tables of Options.Fetched. If rules find rows of one wrong, its
	// last good rows stay in force.
	Tables Tables
	// Loaded is called with the outcome of each load, after Use: with why the rules were refused, or
	// else the overlays, or the newest rows of tables.
	Loaded func(error)
	Log    *slog.Logger

	inForce  bool          // Use was called
	overlays []*rules.File // in force
}

// Publish implements [Publish]: it loads the files, calls Use, Skipped and
// Loaded, and logs every problem. Calls must not overlap. Overlays stand behind the rules in files. If
// the rules have more problems with them than with the overlays in force, these stay in force: Loaded
// has the problems then, and Publish returns nil.
func (r *Rules) Publish(files []*rules.File, unreadable error) error {
	err := unreadable
	var overlay, tables error // why they are not in force
	if err == nil {
		err, overlay = r.load(files)
		if r.Tables != nil {
			tables = r.Tables.Loaded(err == nil)
		}
	}
	if err != nil {
		message := "rules refused, no rules are in force"
		if r.inForce {
			message = "rules refused, the last good ones stay in force"
		}
		r.Log.Error(message, "files", len(files), "problems", err.Error())
	}
	r.Loaded(cmp.Or(err, overlay, tables))
	return err
}

func (r *Rules) load(files []*rules.File) (err, overlay error) {
	tree, warnings, err := r.compile(files)
	var problems rules.Problems
	if before := slices.Concat(without(files, isOverlay), r.overlays); errors.As(err, &problems) && r.inForce && !slices.Equal(files, before) {
		var others rules.Problems
		t, w, e := r.compile(before)
		if errors.As(e, &others); t != nil && len(others) < len(problems) {
			r.Log.Error("overlay refused, the last good one stays in force", "problems", err.Error())
			tree, warnings, err, overlay, files, problems = t, w, e, err, before, others
		}
	}
	var said []string
	for _, warning := range rules.Problems(warnings).Told() {
		r.Log.Warn("rules", "warning", warning.Error())
		said = append(said, warning.Error())
	}
	if tree == nil {
		return err, nil
	}
	for _, problem := range problems.Told() {
		r.Log.Error("rules: left out, the others are in force", "problem", problem.Error())
		said = append(said, "left out: "+problem.Error())
	}
	if r.Warned != nil {
		r.Warned(said)
	}
	r.Use(tree)
	r.inForce = true
	r.overlays = without(files, func(f *rules.File) bool { return !f.Overlay })
	descriptors.TakeTurns()
	if r.Skipped != nil {
		r.Skipped(len(problems))
	}
	r.Log.Info("rules loaded", "files", len(files), "domains", len(tree.Domains()))
	return nil, overlay
}

// compile loads files with the newest tables, or else with the last good ones.
func (r *Rules) compile(files []*rules.File) (*descriptors.Tree, []rules.Problem, error) {
	tree, warnings, err := rules.Load(files, r.Options)
	var problems rules.Problems
	if tree == nil && r.Tables != nil && errors.As(err, &problems) && r.Tables.Leave(problems) {
		if t, w, e := rules.Load(files, r.Options); t != nil {
			return t, w, e
		}
	}
	return tree, warnings, err
}

func isOverlay(f *rules.File) bool { return f.Overlay }

// without returns files without those that leave reports.
func without(files []*rules.File, leave func(*rules.File) bool) []*rules.File {
	return slices.DeleteFunc(slices.Clone(files), leave)
}
