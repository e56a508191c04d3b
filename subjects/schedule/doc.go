// Package schedule says when the items of a schedule are pushed. A [Schedule] is what can be set, a
// [Record] is what a queue stores, and [Record.Fire] returns the times that are due. The package
// does no I/O and reads no clock. Records are plain values: they are not safe for concurrent use.
//
// # Times
//
// A schedule has a cron expression or an interval. An interval counts from when the schedule was
// set. A cron expression has five fields, minute, hour, day of month, month and day of week, or is
// a name such as @daily. If neither day field begins with a star, it is enough that one of them
// matches.
//
// A cron expression goes by the wall clock of its zone. When that clock is changed, the schedule
// follows Vixie cron's rule:
//
//   - With a star in the minute or the hour, it follows real time: it fires whenever the clock
//     shows a matching time, even if the clock shows it a second time.
//   - Otherwise each time fires once a day. A time that the clock skips fires when the clock has
//     skipped it (02:30 at 03:00). A time that the clock shows twice fires the first time.
package schedule
