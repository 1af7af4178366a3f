package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
)

// actAsLimitador makes the binary of these tests a fake of limitador.
const actAsLimitador = "ACT_AS_LIMITADOR"

func TestMain(m *testing.M) {
	if os.Getenv(actAsLimitador) == "" {
		os.Exit(m.Run())
	}
	if err := limitador(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fakeLimitador returns a program that takes the arguments of limitador.
func fakeLimitador(t *testing.T) string {
	t.Setenv(actAsLimitador, "1")
	return os.Args[0]
}

// limitador serves as limitador-server with these arguments would: it counts each
// request of the limits' namespace in Redis, and replies without statuses.
func limitador(args []string) error {
	if got := strings.Join(append([]string{args[0], args[2], args[4], args[6]}, args[9:10]...), " "); len(args) != 11 ||
		got != "--rls-ip --rls-port --http-ip --http-port redis" {
		return fmt.Errorf("arguments of limitador: %q", args)
	}
	limits, err := os.ReadFile(args[8])
	if err != nil {
		return err
	}
	if strings.Count(string(limits), "namespace: compare") != 4 {
		return fmt.Errorf("limits of limitador: %q", limits)
	}
	options, err := goredis.ParseURL(args[10])
	if err != nil {
		return err
	}
	listen, err := net.Listen("tcp", net.JoinHostPort(args[1], args[3]))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(server, counting{redis: goredis.NewClient(options)})
	go server.Serve(listen) //nolint:errcheck // ends with the process
	http.HandleFunc("/status", func(http.ResponseWriter, *http.Request) {})
	return http.ListenAndServe(net.JoinHostPort(args[5], args[7]), nil)
}

type counting struct {
	pb.UnimplementedRateLimitServiceServer
	redis *goredis.Client
}

func (c counting) ShouldRateLimit(ctx context.Context, _ *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	if err := c.redis.Incr(ctx, "hits").Err(); err != nil {
		return nil, err
	}
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
}
