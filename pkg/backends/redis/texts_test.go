package redis_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// TestTexts: texts of one process are there for another one, next to cells, for their lifetime, whatever
// server has them.
func TestTexts(t *testing.T) {
	sets := testenv.Sentinel(t)
	for name, o := range map[string]redis.Options{
		"single":   {URL: testenv.Redis(t).Addr},
		"sentinel": {Type: "sentinel", URL: sets.MasterName + "," + strings.Join(sets.Addrs(), ",")},
		"cluster":  {Type: "cluster", URL: strings.Join(testenv.RedisCluster(t, 3, 0).Addrs(), ",")},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			one, two := open(t, o), open(t, o)
			for _, key := range []string{"a", "b", "c", "d|1"} { // in slots of several servers
				texts, err := two.Texts(ctx, key)
				if err != nil || len(texts) > 0 {
					t.Fatalf("at first: got %v, %v", texts, err)
				}
				want := map[string]string{"x": strings.Repeat("\x00\xff", 1<<19), "y": ""}
				if err := one.SetTexts(ctx, key, map[string]string{"x": "before", "y": ""}, time.Hour); err != nil {
					t.Fatal(err)
				}
				if err := two.SetTexts(ctx, key, map[string]string{"x": want["x"]}, time.Hour); err != nil {
					t.Fatal(err)
				}
				if texts, err = one.Texts(ctx, key); err != nil || !maps.Equal(texts, want) {
					t.Errorf("got %.100v, %v", texts, err)
				}
				if err := one.SetTexts(ctx, key, map[string]string{"z": ""}, time.Millisecond); err != nil {
					t.Fatal(err)
				}
				testenv.Eventually(t, 10*time.Second, func() bool {
					texts, err := one.Texts(ctx, key)
					return err == nil && len(texts) == 0
				}, "they end")
			}
		})
	}
}

// TestTextsThatAreNone: a key that holds something else stays, and a server that is away is an error at once.
func TestTextsThatAreNone(t *testing.T) {
	server, s := start(t)
	must(t, s, hit("a"))
	if _, err := s.Texts(context.Background(), "a"); err == nil || errors.Is(err, backends.ErrUnavailable) {
		t.Error("a counter has no texts")
	}
	if err := s.SetTexts(context.Background(), "a", map[string]string{"x": ""}, time.Hour); err == nil {
		t.Error("texts took the place of a counter")
	}
	if r := must(t, s, hit("a")); r[0].Value != (backends.Amount{Whole: 2}) {
		t.Errorf("got %v", r[0])
	}
	server.Kill()
	if _, err := s.Texts(context.Background(), "b"); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), server.Addr) {
		t.Errorf("got %v, want the name of the server that is away", err)
	}
}
