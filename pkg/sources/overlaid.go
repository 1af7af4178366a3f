package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors/rules"
)

// Overlaid is a source of rules with overlays, which stand in files of their own. It publishes both
// together, the overlays behind the rules, and again whenever one of them changes.
type Overlaid struct {
	Source
	// Overlays is the source of the overlays, the files at Path.
	Overlays Source
	Path     string
	// Again has Source publish its rules again, from another goroutine. It does not wait for that.
	Again func()
}

// Run implements [Source]. It asks Source for rules when it has read the overlays. Calls of publish
// come from two goroutines and do not overlap.
func (o *Overlaid) Run(ctx context.Context, publish Publish) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // of the variables below, and for calls of publish
	var overlays []*rules.File
	read, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- o.Overlays.Run(ctx, func(files []*rules.File, unreadable error) error {
			mu.Lock()
			defer mu.Unlock()
			overlays = files
			if unreadable != nil {
				problem := document.Problem{Position: document.Position{File: o.Path}, Message: unreadable.Error()}
				overlays = []*rules.File{{Name: o.Path, Problems: rules.Problems{problem}}}
			}
			for _, f := range overlays {
				f.Overlay = true
			}
			select {
			case <-read:
				o.Again()
			default:
				close(read)
			}
			return nil
		})
	}()
	select {
	case err := <-ended:
		if errors.Is(err, ErrNoFolder) {
			err = fmt.Errorf("OVERLAY_FILE: %s does not exist; want a file with overlays, or a folder of such files", o.Path)
		}
		return err
	case <-read:
	}
	err := o.Source.Run(ctx, func(files []*rules.File, unreadable error) error {
		mu.Lock()
		defer mu.Unlock()
		return publish(slices.Concat(files, overlays), unreadable)
	})
	cancel()
	return errors.Join(err, <-ended)
}

// Repeated is a source that publishes its last rules again on demand.
type Repeated struct {
	Source
	// Again has a value for each time that the rules are wanted again.
	Again <-chan struct{}
	// Keep reports after each publication whether the rules may be wanted again, so that they stay
	// in memory.
	Keep func() bool
}

// Run implements [Source]. Calls of publish come from two goroutines and do not overlap.
func (r *Repeated) Run(ctx context.Context, publish Publish) error {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var last func()
	var repeating sync.WaitGroup
	repeating.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.Again:
			}
			mu.Lock()
			if last != nil {
				last()
			}
			mu.Unlock()
		}
	})
	err := r.Source.Run(ctx, func(files []*rules.File, unreadable error) error {
		mu.Lock()
		defer mu.Unlock()
		err := publish(files, unreadable)
		if last = nil; r.Keep() {
			last = func() { _ = publish(files, unreadable) } // which logs its error
		}
		return err
	})
	cancel()
	repeating.Wait()
	return err
}
