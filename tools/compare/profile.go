package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"example.org/rls/tools/launch"
)

// asEmbedded starts this program with its own store in memory.
func asEmbedded(cmd *exec.Cmd, dir string, ports [4]int) string {
	health := asRatelimit(cmd, dir, ports)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(setting string) bool { return strings.HasPrefix(setting, "REDIS_") })
	cmd.Env = append(cmd.Env, "BACKEND_TYPE=memory")
	return health
}

// record writes into file one CPU profile of this program: of every workload, with
// Redis and with its own store.
func record(ctx context.Context, redis, ours, file string, each time.Duration) error {
	var all []*profile.Profile
	err := withRules(func(dir string) error {
		for _, start := range []func(*exec.Cmd, string, [4]int) string{asRatelimit, asEmbedded} {
			for _, w := range workloads {
				p := program{path: ours, start: start, while: func(ports [4]int) error {
					one, err := fetch(ports[3], each)
					all = append(all, one)
					return err
				}}
				if _, err := measure(ctx, redis, dir, p, w, each); err != nil {
					return fmt.Errorf("%s: %s: %w", w.name, p.path, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return err
	}
	for _, m := range merged.Mapping {
		m.File = "rls" // the path of the program differs from machine to machine
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(merged.Write(out), out.Close())
}

// fetch asks a running program for its CPU profile.
func fetch(port int, each time.Duration) (*profile.Profile, error) {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", launch.Loopback(port), max(1, int(each.Seconds())))
	reply, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, reply.Status)
	}
	return profile.Parse(reply.Body)
}
