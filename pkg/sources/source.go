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
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"example.org/rls/internal/document"
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
	// Any reports whether rules name an address.
	Any() bool
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
	// Overlays, if not nil, has the overlays, which stand in files of their own and behind the rules.
	Overlays *Files
	// Again has a value for each time that the rules are to be loaded again, with other overlays or
	// tables. The source reads it; with Repeats Run does, and keeps the rules that the source published last.
	Again   chan struct{}
	Repeats bool
	// Loaded is called with the outcome of each load, and puts its rules in force.
	Loaded func(Load)
	Log    *slog.Logger

	mu       sync.Mutex    // of the fields below, and for loads
	last     func()        // loads the rules that were published last; nil if Run need not load them again
	inForce  bool          // rules were loaded
	newest   []*rules.File // the overlays that were read last
	overlays []*rules.File // in force
}

// Run runs a source, which it asks for rules when it has read the overlays, until ctx ends. publish is
// r.Publish, or a function that adds the overlays by r.Laid.
func (r *Rules) Run(ctx context.Context, source Source, publish Publish) error {
	all, ctx := errgroup.WithContext(ctx)
	read := make(chan struct{})
	if r.Overlays == nil {
		close(read)
	} else {
		all.Go(func() error { return r.overlay(ctx, read) })
	}
	all.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-read:
			return source.Run(ctx, publish)
		}
	})
	for r.Repeats {
		select {
		case <-ctx.Done():
			return all.Wait()
		case <-r.Again:
			r.mu.Lock()
			if r.last != nil {
				r.last()
			}
			r.mu.Unlock()
		}
	}
	return all.Wait()
}

// overlay reads the overlays, closes read when it has, and asks for the rules again whenever overlays
// change.
func (r *Rules) overlay(ctx context.Context, read chan<- struct{}) error {
	first := true
	err := r.Overlays.Run(ctx, func(files []*rules.File, unreadable error) error {
		if unreadable != nil {
			problem := document.Problem{Position: document.Position{File: r.Overlays.Root}, Message: unreadable.Error()}
			files = []*rules.File{{Name: r.Overlays.Root, Problems: rules.Problems{problem}}}
		}
		for _, f := range files {
			f.Overlay = true
		}
		r.mu.Lock()
		r.newest = files
		r.mu.Unlock()
		if first {
			close(read)
		} else {
			Wake(r.Again)
		}
		first = false
		return nil
	})
	if errors.Is(err, ErrNoFolder) {
		const want = "want a file with overlays, or a folder of such files"
		err = fmt.Errorf("OVERLAY_FILE: %s does not exist; %s", r.Overlays.Root, want)
	}
	return err
}

// Laid returns files with the newest overlays behind them.
func (r *Rules) Laid(files []*rules.File) []*rules.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(files, r.newest)
}

// Wake asks a source for its rules. It does not wait for them.
func Wake(source chan<- struct{}) {
	select {
	case source <- struct{}{}:
	default: // it is about to publish them
	}
}

// Publish implements [Publish]: it loads the files with the newest overlays, calls Loaded, and logs
// every problem. If the rules have more problems with these overlays than with those in force, the latter
// stay in force: Loaded has the problems then, and Publish returns nil.
func (r *Rules) Publish(files []*rules.File, unreadable error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.put(files, unreadable)
	if r.last = nil; r.Repeats && (r.Overlays != nil || r.Tables != nil && r.Tables.Any()) {
		r.last = func() { _ = r.put(files, unreadable) } // which logs its error
	}
	return err
}

func (r *Rules) put(files []*rules.File, unreadable error) error {
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
		r.Log.Info("rules loaded", "files", len(files)+len(r.newest), "domains", len(load.Tree.Domains()))
		return nil
	}
	message := "rules refused, no rules are in force"
	if r.inForce {
		message = "rules refused, the last good ones stay in force"
	}
	r.Log.Error(message, "files", len(files)+len(r.newest), "problems", load.Err.Error())
	r.Loaded(load)
	return load.Err
}

// load loads files, with the overlays in force in place of those that make more problems.
func (r *Rules) load(files []*rules.File) (load Load) {
	overlays := r.newest
	tree, warnings, err := r.compile(slices.Concat(files, overlays))
	var problems rules.Problems
	if errors.As(err, &problems) && r.inForce && !slices.Equal(overlays, r.overlays) {
		var others rules.Problems
		t, w, e := r.compile(slices.Concat(files, r.overlays))
		if errors.As(e, &others); t != nil && len(others) < len(problems) {
			r.Log.Error("overlay refused, the last good one stays in force", "problems", err.Error())
			tree, warnings, err, load.Err, overlays, problems = t, w, e, err, r.overlays, others
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
	r.overlays = overlays
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
