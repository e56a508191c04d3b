package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Column is a column of a table.
type Column struct {
	Title string
	Align Alignment
}

// Alignment says how the values of a column stand in it.
type Alignment int

const (
	Left Alignment = iota
	Right
	Snipped // left, and cut in the middle if the terminal has not enough columns
)

// between is the blanks between columns.
const between = "  "

// Table is a table: for people with a heading, for programs with tabs between the columns.
type Table struct {
	out      io.Writer
	terminal bool
	width    int // of the terminal
	list     []Column
	rows     []table.Row
}

// NewTable returns a table without rows, which Print writes to out.
func NewTable(out io.Writer, list ...Column) *Table {
	return &Table{out: out, list: list, terminal: Is(out), width: Width(out)}
}

// NewFrame returns a table for people that is part of a frame of a Screen of this width.
func NewFrame(width int, list ...Column) *Table {
	return &Table{list: list, terminal: true, width: width}
}

// Row adds a row. People get numbers with commas.
func (t *Table) Row(values ...any) {
	if t.terminal {
		for i, v := range values {
			if n, ok := v.(int64); ok {
				values[i] = Grouped(n)
			}
		}
	}
	t.rows = append(t.rows, values)
}

// Print prints the table.
func (t *Table) Print() error {
	_, err := io.WriteString(t.out, t.String())
	return err
}

// String returns the table.
func (t *Table) String() string {
	if !t.terminal {
		var b strings.Builder
		for _, row := range t.rows {
			for i, v := range row {
				if i > 0 {
					b.WriteByte('\t')
				}
				fmt.Fprint(&b, v)
			}
			b.WriteByte('\n')
		}
		return b.String()
	}

	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", between
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	w.SetColumnConfigs(t.configs())

	titles := make(table.Row, len(t.list))
	for i, col := range t.list {
		titles[i] = col.Title
	}
	w.AppendHeader(titles)
	w.AppendRows(t.rows)
	return w.Render() + "\n"
}

// configs says how the columns are aligned, and how wide they can be.
func (t *Table) configs() []table.ColumnConfig {
	room := t.room()
	configs := make([]table.ColumnConfig, len(t.list))
	for i, col := range t.list {
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		switch {
		case col.Align == Right:
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		case col.Align == Snipped && t.width > 0:
			configs[i].WidthMax = max(room, text.StringWidth(col.Title))
			configs[i].WidthMaxEnforcer = snipMiddle
		}
	}
	return configs
}

// room returns how many columns of the terminal are left for the one that is snipped.
func (t *Table) room() int {
	room := t.width
	for i, col := range t.list {
		room -= len(between)
		if col.Align == Snipped {
			continue
		}

		widest := text.StringWidth(col.Title)
		for _, row := range t.rows {
			widest = max(widest, text.StringWidth(fmt.Sprint(row[i])))
		}
		room -= widest
	}
	return room
}

// snipMiddle cuts a name so that both of its ends stay, because names often differ at one only.
func snipMiddle(name string, most int) string {
	if text.StringWidth(name) <= most {
		return name
	}
	end := max(most-1, 0) / 2
	runes := []rune(name)
	from := len(runes)
	for from > 0 && text.StringWidth(string(runes[from-1:])) <= end {
		from--
	}
	return text.Snip(name, most-end, "~") + string(runes[from:])
}

// Apart returns how much room, at least least, the column that is snipped needs so that its values
// differ.
func (t *Table) Apart(least int) int {
	snipped := slices.IndexFunc(t.list, func(c Column) bool { return c.Align == Snipped })
	for room, longest := least, least; ; room++ {
		seen := map[string]bool{}
		for _, row := range t.rows {
			name := fmt.Sprint(row[snipped])
			seen[snipMiddle(name, room)] = true
			longest = max(longest, text.StringWidth(name))
		}
		if len(seen) == len(t.rows) || room >= longest {
			return room
		}
	}
}

// Shrink drops the last columns until the one that is snipped has room, except for the first keep.
func (t *Table) Shrink(room, keep int) {
	for len(t.list) > keep && t.room() < room {
		t.dropLast()
	}
}

// dropLast removes the last column.
func (t *Table) dropLast() {
	last := len(t.list) - 1
	t.list = t.list[:last]
	for i, row := range t.rows {
		t.rows[i] = row[:last]
	}
}
