package process

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"time"
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

// newLog returns a logger that writes lines of a level and those above to w, in the shape of those
// of envoyproxy/ratelimit, so that programs that collect its lines understand these, too. The
// level is a name that LOG_LEVEL takes, the format "text" or "json".
func newLog(w io.Writer, level, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: levels[level], ReplaceAttr: jsonShape}))
	}
	return slog.New(slog.NewTextHandler(quotedTime{w}, &slog.HandlerOptions{Level: levels[level], ReplaceAttr: textShape}))
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
	text, found := bytes.CutPrefix(line, []byte("time="))
	if !found {
		return q.w.Write(line)
	}
	begin, rest, _ := bytes.Cut(text, []byte(" "))
	_, err := fmt.Fprintf(q.w, "time=%q %s", begin, rest)
	return len(line), err
}
