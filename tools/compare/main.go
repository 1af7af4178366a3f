// Compare measures the cost of a decision in this service, in envoyproxy/ratelimit
// and, if it is given one, in limitador. For each program it starts redis-server and
// the program, with the same limits and requests. It prints the processor time of the
// program and of Redis for a request, and how long callers waited.
//
// It runs on Linux. The caller builds the programs. The figures depend on the
// machine: compare figures of one run only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"
	"time"
)

// workload is a kind of request.
type workload struct {
	name        string
	descriptors int // in a request
	keys        int // different values, sent in turn
}

var workloads = []workload{
	{"1 descriptor, 10,000 keys", 1, 10_000},
	{"4 descriptors, 10,000 keys", 4, 10_000},
	{"1 descriptor, one hot key", 1, 1},
}

func main() {
	ours := flag.String("ours", "bin/rls", "this program")
	reference := flag.String("reference", "", "envoyproxy/ratelimit's program")
	limitador := flag.String("limitador", "", "limitador's program, limitador-server; without it limitador is left out")
	redis := flag.String("redis", "redis-server", "the program that counts for all of them")
	each := flag.Duration("for", 5*time.Second, "how long each workload is measured")
	file := flag.String("profile", "", "write a CPU profile of this program into this file, and compare nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *file != "" {
		err = record(ctx, *redis, *ours, *file, *each)
	} else {
		err = run(ctx, *redis, *ours, *reference, *limitador, *each, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// run measures each workload on all programs and writes a table to out. limitador may
// be "".
func run(ctx context.Context, redis, ours, reference, limitador string, each time.Duration, out io.Writer) error {
	if reference == "" {
		return errors.New("want -reference: a program built from github.com/envoyproxy/ratelimit, go build ./src/service_cmd")
	}
	return withRules(func(dir string) error {
		others := []program{{name: "reference", path: reference, start: asRatelimit}}
		if limitador != "" {
			others = append(others, program{name: "limitador", path: limitador, start: asLimitador, silent: true})
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "workload\tprogram\tCPU µs/request\tof Redis\trequests/s\tp50\tp99")
		for _, w := range workloads {
			var cost []float64
			for _, p := range append(others, program{name: "rls", path: ours, start: asRatelimit}) {
				r, err := measure(ctx, redis, dir, p, w, each)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", w.name, p.path, err)
				}
				cost = append(cost, r.program+r.redis)
				_, _ = fmt.Fprintf(table, "%s\t%s\t%.1f\t%.1f\t%.0f\t%v\t%v\n", w.name, p.name,
					r.program, r.redis, r.rate, r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond))
			}
			for i, p := range others {
				_, _ = fmt.Fprintf(table, "\tratio to %s\t%.2f\t\t\t\t\n", p.name, cost[len(others)]/cost[i])
			}
		}
		return table.Flush()
	})
}

// withRules calls use with a folder that has the rules of all programs.
func withRules(use func(dir string) error) error {
	dir, err := os.MkdirTemp("", "rls-compare-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// A limit of limitador counts in a request that has its variable.
	rules, limits := "domain: compare\ndescriptors:\n", ""
	for i := range 4 {
		rules += fmt.Sprintf("  - {key: d%d, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n", i)
		limits += fmt.Sprintf("- {namespace: compare, max_value: 1000000000, seconds: 3600, conditions: [], variables: [\"descriptors[%d]['d%d']\"]}\n", i, i)
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "config"), 0o755),
		os.WriteFile(filepath.Join(dir, "config", "compare.yaml"), []byte(rules), 0o600),
		os.WriteFile(filepath.Join(dir, limitsFile), []byte(limits), 0o600),
	); err != nil {
		return err
	}
	return use(dir)
}
