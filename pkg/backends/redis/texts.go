package redis

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis/lane"
)

var _ backends.Texts = (*Store)(nil)

// Texts implements backends.Texts: the texts are the fields of a hash.
func (s *Store) Texts(ctx context.Context, key string) (texts map[string]string, err error) {
	err = s.do(ctx, key, func() (goredis.Cmder, []goredis.Cmder) {
		all := goredis.NewMapStringStringCmd(ctx, "hgetall", key)
		return all, nil
	}, func(answer goredis.Cmder) { texts = answer.(*goredis.MapStringStringCmd).Val() })
	if err != nil {
		return nil, fmt.Errorf("redis: read %s: %w", key, err)
	}
	return texts, nil
}

// SetTexts implements backends.Texts.
func (s *Store) SetTexts(ctx context.Context, key string, texts map[string]string, lifetime time.Duration) error {
	set := []any{"hset", key}
	for name, text := range texts {
		set = append(set, name, text)
	}
	var expires goredis.Cmder
	err := s.do(ctx, key, func() (goredis.Cmder, []goredis.Cmder) {
		expires = goredis.NewBoolCmd(ctx, "pexpire", key, lifetime.Milliseconds())
		return goredis.NewIntCmd(ctx, set...), []goredis.Cmder{expires}
	}, func(goredis.Cmder) {})
	if err == nil {
		err = expires.Err()
	}
	if err != nil {
		return fmt.Errorf("redis: write %s: %w", key, err)
	}
	return nil
}

// do sends commands to the server that has key, and calls take with the answer to the first one. Its
// error wraps backends.ErrUnavailable unless the server has answered with an error.
func (s *Store) do(ctx context.Context, key string, commands func() (goredis.Cmder, []goredis.Cmder), take func(goredis.Cmder)) error {
	ctx, cancel := backends.Within(ctx, s.target.Timeout)
	defer cancel()
	way, err := s.servers.lane(ctx, key)
	asking := false
	for redirects := 0; err == nil; redirects++ {
		first, after := commands()
		t := &lane.Trip{Key: key, Cmd: first, After: after, Asking: asking}
		sent := way.Send(t)
		if sent == nil {
			sent = way.Wait(ctx, t)
		}
		if sent == nil {
			take(first)
			return nil
		}
		next, ask := s.servers.redirect(sent, way)
		s.servers.failed(sent)
		switch {
		case next != nil && redirects < maxRedirects:
			way, asking = next, ask
		case lane.Answered(sent):
			return way.Named(sent)
		default:
			err = way.Named(sent)
		}
	}
	return unavailable(err)
}
