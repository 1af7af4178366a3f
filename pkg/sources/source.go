// Package sources brings rules into the process. [Files] reads them from files and
// looks often whether these have changed; package xds asks a management server for them.
//
// A [Source] publishes rules whenever they change;
// [Rules] loads published files and puts their rules in force. The package
// promises that rules that cannot be read or loaded change nothing, so that the
// last good rules stay in force, and that changed files are in force within 2 s and the time of
// a load. The language of the rules is left to pkg/descriptors/rules.
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

// Load is the outcome of a load of rules.
type Load struct {
	// Tree has the rules that come into force; nil if they were refused, so that the last ones stay.
	Tree *descriptors.Tree
	// Warnings are the warnings of the rules in Tree, and the problems for which a descriptor or a file was
	// left out (rules.Options.SkipWrong), whose number is Skipped.
	Warnings []string
	Skipped  int
	// Err says why the rules were refused, or else the overlays, or the newest rows of tables.
	Err error
}

// Rules has the rules that a source publishes put in force.
type Rules struct {
	Options rules.Options
	// Tables, if not nil, fetches the tables of Options.Fetched. If rules find rows of one wrong, its
	// last good rows stay in force.
	Tables Tables
	// Loaded is called with the outcome of each load, and puts its rules in force.
	Loaded func(Load)
	Log    *slog.Logger

	inForce  bool          // rules were loaded
	overlays []*rules.File // in force
}

// Publish implements [Publish]: it loads the files, calls Loaded, and logs every problem. Calls must
// not overlap. Overlays stand behind the rules in files. If
// the rules have more problems with them than with the overlays in force, these stay in force: Loaded
// has the problems then, and Publish returns nil.
func (r *Rules) Publish(files []*rules.File, unreadable error) error {
	load := Load{Err: unreadable}
	if unreadable == nil {
		load = r.load(files)
		if r.Tables != nil {
			load.Err = cmp.Or(load.Err, r.Tables.Loaded(load.Tree != nil))
		}
	}
	if load.Tree != nil {
		r.Loaded(load)
		r.inForce = true
		descriptors.TakeTurns()
		r.Log.Info("rules loaded", "files", len(files), "domains", len(load.Tree.Domains()))
		return nil
	}
	message := "rules refused, no rules are in force"
	if r.inForce {
		message = "rules refused, the last good ones stay in force"
	}
	r.Log.Error(message, "files", len(files), "problems", load.Err.Error())
	r.Loaded(load)
	return load.Err
}

// load loads files, with the overlays in force in place of those that make more problems.
func (r *Rules) load(files []*rules.File) (load Load) {
	tree, warnings, err := r.compile(files)
	var problems rules.Problems
	if before := slices.Concat(without(files, isOverlay), r.overlays); errors.As(err, &problems) && r.inForce && !slices.Equal(files, before) {
		var others rules.Problems
		t, w, e := r.compile(before)
		if errors.As(e, &others); t != nil && len(others) < len(problems) {
			r.Log.Error("overlay refused, the last good one stays in force", "problems", err.Error())
			tree, warnings, err, load.Err, files, problems = t, w, e, err, before, others
		}
	}
	for _, warning := range rules.Problems(warnings).Told() {
		r.Log.Warn("rules", "warning", warning.Error())
		load.Warnings = append(load.Warnings, warning.Error())
	}
	if tree == nil {
		return Load{Err: err}
	}
	for _, problem := range problems.Told() {
		r.Log.Error("rules: left out, the others are in force", "problem", problem.Error())
		load.Warnings = append(load.Warnings, "left out: "+problem.Error())
	}
	r.overlays = without(files, func(f *rules.File) bool { return !f.Overlay })
	load.Tree, load.Skipped = tree, len(problems)
	return load
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
