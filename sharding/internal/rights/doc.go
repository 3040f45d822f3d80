// Package rights reports which rights the sharder lacks for each ring, as condition
// PermissionsGranted. Rights that it needs whatever the rings are, it checks when it starts.
package rights
