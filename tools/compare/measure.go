package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/procfs"
	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/rls/internal/load"
	"example.org/rls/tools/launch"
)

const (
	inFlight    = 64
	connections = 2
)

// program is a service that is compared.
type program struct {
	name, path string
	// start gives the command its settings, and returns the path on the HTTP port
	// that is answered when the program is ready. The ports are of Redis, gRPC, HTTP
	// and debugging.
	start func(cmd *exec.Cmd, dir string, ports [4]int) string
	// silent: replies do not say which limit counted.
	silent bool
	// while, if not nil, runs while requests are measured. The ports are those of start.
	while func(ports [4]int) error
}

// asRatelimit starts this program and envoyproxy/ratelimit, both under the name
// ratelimit.
func asRatelimit(cmd *exec.Cmd, dir string, ports [4]int) string {
	cmd.Args[0] = "ratelimit"
	cmd.Env = append(os.Environ(),
		"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+launch.Loopback(ports[0]),
		"RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=config", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		fmt.Sprintf("GRPC_PORT=%d", ports[1]), fmt.Sprintf("PORT=%d", ports[2]), fmt.Sprintf("DEBUG_PORT=%d", ports[3]),
		"USE_STATSD=false", "LOG_LEVEL=error", "DRAIN_PERIOD=0s")
	return "/healthcheck"
}

// asLimitador starts limitador 2 with every hit counted in Redis.
func asLimitador(cmd *exec.Cmd, dir string, ports [4]int) string {
	cmd.Args = append(cmd.Args,
		"--rls-ip", "127.0.0.1", "--rls-port", strconv.Itoa(ports[1]),
		"--http-ip", "127.0.0.1", "--http-port", strconv.Itoa(ports[2]),
		filepath.Join(dir, limitsFile), "redis", "redis://"+launch.Loopback(ports[0]))
	return "/status"
}

const limitsFile = "limits.yaml"

// result is the measurement of one program under one workload.
type result struct {
	program, redis float64 // µs of processor time for a request
	rate           float64 // requests a second
	p50, p99       time.Duration
}

// measure starts Redis and the program, sends requests, and stops both.
func measure(ctx context.Context, redis, dir string, p program, w workload, each time.Duration) (r result, err error) {
	var ports [4]int
	if err := launch.FreePorts(&ports[0], &ports[1], &ports[2], &ports[3]); err != nil {
		return r, err
	}
	programs := launch.NewGroup(ctx)
	defer programs.Stop()
	ctx = programs.Context
	store := programs.Command(redis, "--port", strconv.Itoa(ports[0]), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := programs.Start(store, programs.Listens, launch.Loopback(ports[0])); err != nil {
		return r, err
	}
	service := programs.Command(p.path)
	health := p.start(service, dir, ports)
	if err := programs.Start(service, programs.Answers, "http://"+launch.Loopback(ports[2])+health); err != nil {
		return r, err
	}
	var clients []pb.RateLimitServiceClient
	for range connections {
		conn, err := grpc.NewClient("passthrough:///"+launch.Loopback(ports[1]), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return r, err
		}
		defer func() { _ = conn.Close() }()
		clients = append(clients, pb.NewRateLimitServiceClient(conn))
	}
	if _, err := ask(ctx, clients, p, w, each/5); err != nil { // to warm up
		return r, err
	}
	before := [2]time.Duration{processor(service.Process.Pid), processor(store.Process.Pid)}
	var beside error
	var running sync.WaitGroup
	if p.while != nil {
		running.Go(func() { beside = p.while(ports) })
	}
	sum, err := ask(ctx, clients, p, w, each)
	running.Wait()
	if err := errors.Join(err, beside); err != nil {
		return r, err
	}
	r = result{
		program: float64((processor(service.Process.Pid) - before[0]).Microseconds()) / float64(sum.OK),
		redis:   float64((processor(store.Process.Pid) - before[1]).Microseconds()) / float64(sum.OK),
		rate:    sum.Rate(),
		p50:     sum.Latency.P50,
		p99:     sum.Latency.P99,
	}
	if p.silent {
		return r, counted(ctx, launch.Loopback(ports[0]))
	}
	return r, nil
}

// counted returns an error if Redis holds no counter. Replies without statuses do not
// say whether a limit was found.
func counted(ctx context.Context, redis string) error {
	client := goredis.NewClient(&goredis.Options{Addr: redis})
	defer func() { _ = client.Close() }()
	keys, err := client.DBSize(ctx).Result()
	if err == nil && keys == 0 {
		err = errors.New("the program has not asked Redis: do its limits match?")
	}
	return err
}

// ask sends requests from inFlight callers, each one after the other. It ends with the first
// request that fails.
func ask(ctx context.Context, clients []pb.RateLimitServiceClient, p program, w workload, during time.Duration) (load.Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sum := load.New(load.Options{Duration: during, Concurrency: inFlight, Send: func(_ context.Context, i int) (bool, error) {
		request := &pb.RateLimitRequest{Domain: "compare"}
		for d := range w.descriptors {
			request.Descriptors = append(request.Descriptors, &common.RateLimitDescriptor{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "d" + strconv.Itoa(d), Value: "v" + strconv.Itoa(i%w.keys)}},
			})
		}
		reply, err := clients[i%len(clients)].ShouldRateLimit(ctx, request)
		if err == nil && (reply.OverallCode != pb.RateLimitResponse_OK || !p.silent && reply.Statuses[0].CurrentLimit == nil) {
			err = fmt.Errorf("want OK by a limit, got %v", reply)
		}
		if err != nil {
			cancel(err)
		}
		return false, err
	}}).Run(ctx)
	err := context.Cause(ctx)
	if err == nil && sum.OK == 0 {
		err = fmt.Errorf("no request was answered within %v", during)
	}
	return sum, err
}

// processor returns the processor time of a process, 0 if it has ended.
func processor(pid int) time.Duration {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	stat, _ := process.Stat() // zero if it fails
	return time.Duration(stat.CPUTime() * float64(time.Second))
}
