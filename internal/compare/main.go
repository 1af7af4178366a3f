// Compare measures the cost of a decision in this service and in
// envoyproxy/ratelimit. For each program it starts redis-server and the program, with
// the same environment, rules and requests. It prints the processor time of the
// program and of Redis for a request, and how long callers waited.
//
// It runs on Linux. The caller builds both programs. The figures depend on the
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

const rules = `
domain: compare
descriptors:
  - {key: d0, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: d1, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: d2, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: d3, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
`

func main() {
	ours := flag.String("ours", "bin/rls", "this program")
	reference := flag.String("reference", "", "envoyproxy/ratelimit's program")
	redis := flag.String("redis", "redis-server", "the program that counts for both")
	each := flag.Duration("for", 5*time.Second, "how long each workload is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *redis, *ours, *reference, *each, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// run measures each workload on both programs, both started under the name ratelimit,
// and writes a table to out.
func run(ctx context.Context, redis, ours, reference string, each time.Duration, out io.Writer) error {
	if reference == "" {
		return errors.New("want -reference: a program built from github.com/envoyproxy/ratelimit, go build ./src/service_cmd")
	}
	dir, err := os.MkdirTemp("", "rls-compare-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "config"), 0o755),
		os.WriteFile(filepath.Join(dir, "config", "compare.yaml"), []byte(rules), 0o600),
	); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "workload\tprogram\tCPU µs/request\tof Redis\trequests/s\tp50\tp99")
	for _, w := range workloads {
		var cost [2]float64
		for i, program := range []string{reference, ours} {
			r, err := measure(ctx, redis, dir, program, w, each)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", w.name, program, err)
			}
			cost[i] = r.program + r.redis
			_, _ = fmt.Fprintf(table, "%s\t%s\t%.1f\t%.1f\t%.0f\t%v\t%v\n", w.name, []string{"reference", "rls"}[i],
				r.program, r.redis, r.rate, r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond))
		}
		_, _ = fmt.Fprintf(table, "\tratio of both\t%.2f\t\t\t\t\n", cost[1]/cost[0])
	}
	return table.Flush()
}
