package dashboard

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// none stands for a number that is not known.
const none = "—"

// formats are the functions of the templates. Formats of numbers write nil pointers as none.
var formats = template.FuncMap{
	"num":   orNone(terminal.Grouped),
	"rate":  orNone(rate),
	"age":   orNone(terminal.Short),
	"span":  orNone(terminal.InWords),
	"part":  func(part float64) string { return fmt.Sprintf("%.1f", 100*min(max(part, 0), 1)) },
	"ratio": func(n, of int64) float64 { return float64(n) / float64(max(n, of, 1)) },
	"size":  func(n int) string { return size(int64(n)) },
	"count": func(n int) int64 { return int64(n) },
	"few":   terminal.Plural[int64],
	"ago":   func(now, t time.Time) string { return terminal.Short(now.Sub(t)) + " ago" },
	"until": soon("in ", ""),
	"stamp": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"left":  soon("", " left"),
	"spark": spark,
	"json":  func(v any) (string, error) { b, err := json.Marshal(v); return string(b), err },
	"short": short,
	"took":  func(a trail.Attempt) *time.Duration { return target.Length(&a) },
	"first": target.FirstPush,
	"dots":  func(n int) string { return strings.Repeat("· ", min(max(n, 0), target.MaxChain)) },
	"ends":  ends,
	"runs":  func(text string) []run { return runs(text, math.MaxInt) },
	"clip":  runs,
	"value": showValue,
	"peek":  preview,
	"gloss": func(action string) itemAction { return itemActions[action] },
	"none":  func() string { return none },
	"has":   slices.Contains[[]string],
	"hot":   func(n *int64) bool { return n != nil && *n > 0 },
	"faint": faint,
	"asset": func(name string) string { return assetRoot + name },
	"sub":   shell.with,
	"list":  func(values ...any) []any { return values },
}

// orNone makes a format of numbers one of pointers too.
func orNone[T int64 | float64 | time.Duration](format func(T) string) func(any) (string, error) {
	return func(v any) (string, error) {
		switch v := v.(type) {
		case T:
			return format(v), nil
		case int:
			return format(T(v)), nil
		case *T:
			if v == nil {
				return none, nil
			}
			return format(*v), nil
		}
		return "", fmt.Errorf("a %T is no number", v)
	}
}

// rate writes how often something happens in a second: 0, 0.02, 4.1, 1,204.
func rate(f float64) string {
	switch {
	case f <= 0:
		return "0"
	case f < 0.995:
		return strconv.FormatFloat(max(f, 0.01), 'f', 2, 64)
	case f < 9.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return terminal.Grouped(int64(math.Round(f)))
}

// soon writes how long it is until a time, between two words.
func soon(before, after string) func(now, t time.Time) string {
	return func(now, t time.Time) string {
		if d := t.Sub(now); d > 0 {
			return before + terminal.Short(d) + after
		}
		return "due"
	}
}

// size writes a number of bytes: 812 B, 3.4 kB.
func size(n int64) string {
	f, unit := float64(n), "B"
	for _, larger := range []string{"kB", "MB", "GB", "TB"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, larger
	}
	if f < 9.95 && unit != "B" {
		return fmt.Sprintf("%.1f %s", f, unit)
	}
	return fmt.Sprintf("%.0f %s", f, unit)
}

// spark returns the points of a line, from left to right in a box of w by h. It goes on over those
// that are negative, which are not known.
func spark(line []float64, w, h int) string {
	most := slices.Max(append(line[:len(line):len(line)], 1))
	var b []byte // without fmt, because there are many of them each second
	for i, n := range line {
		if n < 0 {
			continue
		}
		x := float64(w) * float64(i) / float64(max(len(line)-1, 1))
		b = append(strconv.AppendFloat(b, x, 'f', 1, 64), ',')
		b = append(strconv.AppendFloat(b, float64(h)*(1-n/most), 'f', 1, 64), ' ')
	}

	return string(bytes.TrimSuffix(b, []byte(" ")))
}

// short returns the beginning and the end of an id.
func short(id string) string {
	if len(id) <= 14 {
		return id
	}
	return id[:4] + "…" + id[len(id)-7:]
}

// ends returns a long name in two parts; a page may cut the first. It returns nil for others.
func ends(name string) []string {
	const least, tail = 24, 10
	runes := []rune(name)
	if len(runes) <= least {
		return nil
	}
	cut := len(runes) - tail
	return []string{string(runes[:cut]), string(runes[cut:])}
}

// faint is the class of numbers that say nothing: 0, or not known.
func faint(v any) string {
	if value := reflect.Indirect(reflect.ValueOf(v)); !value.IsValid() || value.IsZero() {
		return "z"
	}
	return ""
}

// assetRoot is where the assets are served from. It changes with each start, and so whenever one of
// them does.
var assetRoot = staticPath + rand.Text() + "/"

// orLeast returns a number, less than all others if it is not known.
func orLeast[T int64 | float64 | time.Duration](n *T) float64 {
	if n == nil {
		return -1
	}
	return float64(*n)
}
