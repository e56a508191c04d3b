package terminal

import (
	"fmt"
	"io"
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
	Snipped // left, and cut, to no less than narrowest, if the terminal has not enough columns
)

const narrowest = 8

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
	configs := make([]table.ColumnConfig, len(t.list))
	widths := t.widths()
	for i, col := range t.list {
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		switch {
		case col.Align == Right:
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		case col.Align == Snipped && t.width > 0:
			configs[i].WidthMax = widths[i]
			configs[i].WidthMaxEnforcer = func(value string, most int) string { return Clip(value, most) }
		}
	}
	return configs
}

// widths returns how wide the columns are, once those that are snipped, the first before the others,
// have made room for the rest.
func (t *Table) widths() []int {
	widths, all := make([]int, len(t.list)), -len(between)
	for i, col := range t.list {
		widths[i] = text.StringWidth(col.Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], text.StringWidth(fmt.Sprint(row[i])))
		}
		all += widths[i] + len(between)
	}

	for i, col := range t.list {
		if over := all - t.width; col.Align == Snipped && over > 0 {
			narrow := max(widths[i]-over, min(widths[i], narrowest))
			all -= widths[i] - narrow
			widths[i] = narrow
		}
	}
	return widths
}
