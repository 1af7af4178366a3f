package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"example.org/rls/pkg/settings"
)

// levels are the names of levels in envoyproxy/ratelimit. This program logs
// nothing above error, so fatal and panic keep the log silent.
var levels = map[string]slog.Level{
	"trace":   slog.LevelDebug - 4,
	"debug":   slog.LevelDebug,
	"info":    slog.LevelInfo,
	"warn":    slog.LevelWarn,
	"warning": slog.LevelWarn,
	"error":   slog.LevelError,
	"fatal":   slog.LevelError + 4,
	"panic":   slog.LevelError + 8,
}

// newLogger returns a logger whose lines have the shape of those of
// envoyproxy/ratelimit, so that programs that collect them understand both.
func newLogger(w io.Writer, s settings.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: levels[s.Level]}
	if s.Format == "json" {
		options.ReplaceAttr = jsonShape
		return slog.New(slog.NewJSONHandler(w, options))
	}
	options.ReplaceAttr = textShape
	return slog.New(slog.NewTextHandler(quotedTime{w}, options))
}

// redisLog takes the lines that go-redis would write to stderr in a shape of
// its own, one for each attempt. The store itself says once, at the default
// level, that a server is away, so they are for debugging.
type redisLog struct{ *slog.Logger }

// Printf is called by go-redis.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.Debug("redis: " + fmt.Sprintf(format, args...))
}

// jsonShape gives the three fields of every line the names @timestamp, @message
// and level, and writes durations with their unit, as the text format does.
func jsonShape(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	if len(groups) == 0 {
		switch a.Key {
		case slog.TimeKey:
			a.Key = "@timestamp"
		case slog.MessageKey:
			a.Key = "@message"
		}
	}
	return levelName(groups, a)
}

// textShape begins a line as time=2026-11-21T09:00:00Z level=warning msg=...
func textShape(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String(a.Key, a.Value.Time().Format(time.RFC3339))
	}
	return levelName(groups, a)
}

func levelName(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 || a.Key != slog.LevelKey {
		return a
	}
	name := "error"
	switch level, _ := a.Value.Any().(slog.Level); {
	case level < slog.LevelDebug:
		name = "trace"
	case level < slog.LevelInfo:
		name = "debug"
	case level < slog.LevelWarn:
		name = "info"
	case level < slog.LevelError:
		name = "warning"
	}
	return slog.String(a.Key, name)
}

// quotedTime puts quotes around the time at the start of each line, which slog
// leaves out because the time has no space. It relies on a text handler writing
// each line with one call.
type quotedTime struct{ w io.Writer }

func (q quotedTime) Write(line []byte) (int, error) {
	const begin = "time="
	end := bytes.IndexByte(line, ' ')
	if end < 0 || !bytes.HasPrefix(line, []byte(begin)) {
		return q.w.Write(line)
	}
	quoted := make([]byte, 0, len(line)+2)
	quoted = append(quoted, begin+`"`...)
	quoted = append(quoted, line[len(begin):end]...)
	quoted = append(quoted, '"')
	quoted = append(quoted, line[end:]...)
	if _, err := q.w.Write(quoted); err != nil {
		return 0, err
	}
	return len(line), nil
}
