package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// Overlaid is a source of rules with overlays, which stand in files of their own. It publishes both
// together, the overlays behind the rules, and again whenever one of them changes.
type Overlaid struct {
	Source
	// Overlays is the source of the overlays, the files at Path.
	Overlays Source
	Path     string
	// Again has Source publish its rules again, from another goroutine. If it is nil, the last rules
	// that Source has published are kept in memory.
	Again func()
}

// Run implements [Source]. It asks Source for rules when it has read the overlays. Calls of publish
// come from two goroutines and do not overlap.
func (o *Overlaid) Run(ctx context.Context, publish Publish) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // of the variables below, and for calls of publish
	var overlays []*rules.File
	last := func() {} // publishes the last rules again
	read, ended := make(chan struct{}), make(chan error, 1)
	opened := sync.OnceFunc(func() { close(read) })
	go func() {
		ended <- o.Overlays.Run(ctx, func(files []*rules.File, unreadable error) error {
			mu.Lock()
			defer mu.Unlock()
			overlays = files
			if unreadable != nil {
				problem := document.Problem{Position: descriptors.Position{File: o.Path}, Message: unreadable.Error()}
				overlays = []*rules.File{{Name: o.Path, Problems: rules.Problems{problem}}}
			}
			for _, f := range overlays {
				f.Overlay = true
			}
			last()
			opened()
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
		if last = o.Again; last == nil {
			last = func() { _ = publish(slices.Concat(files, overlays), unreadable) } // which logs its error
		}
		return publish(slices.Concat(files, overlays), unreadable)
	})
	cancel()
	return errors.Join(err, <-ended)
}
