#!/bin/sh
# Makes the role and the database that Fairlane uses; the server's image runs it once, in an empty data folder.
# The role is no superuser: policies hold for it. It may create roles, which `fairlane migrate isolate` needs.
set -eu
psql --no-psqlrc --set ON_ERROR_STOP=1 --set password="$FAIRLANE_PASSWORD" --username postgres --dbname postgres <<'SQL'
create role fairlane login createrole password :'password';
create database fairlane owner fairlane;
SQL
